"""dq calls you back on time: a reliable delayed queue of HTTP callbacks."""

__version__ = "0.1.0"
