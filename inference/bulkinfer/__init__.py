"""bulkinfer: bulk offline inference over ONNX models, one accounted row per picture."""

__version__ = "0.1.0"
__all__ = ["__version__"]
