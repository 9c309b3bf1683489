"""What `auto` becomes on this machine."""
