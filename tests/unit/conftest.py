"""Property tests search for wrong answers; how fast a busy machine is proves nothing."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("dq", deadline=None)
settings.load_profile("dq")
