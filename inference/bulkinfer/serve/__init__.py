"""bulkinfer serve: networks behind the Open Inference Protocol; and bulkinfer request, which measures such a server."""
