"""Frames of a video file."""

from __future__ import annotations

import os

from PIL import Image

from tokencover.errors import LoadError


def read_frames(path: str | os.PathLike[str], count: int) -> list[Image.Image]:
    """Frames at equal distances, the first and the last among them.

    Parameters
    ----------
    path : str or path
        Of the file.
    count : int
        How many; a video with fewer frames shows some of them again.

    Raises
    ------
    LoadError
        If the file is no video that can be read.
    """
    import av

    try:
        wanted = choose_places(_count_frames(path), count)
        found: dict[int, Image.Image] = {}
        with av.open(os.fspath(path)) as container:
            for place, frame in enumerate(container.decode(video=0)):
                if place in wanted:
                    found[place] = frame.to_image().convert("RGB")
                if place == wanted[-1]:
                    break
        if not found:
            raise ValueError("no frame of it can be decoded")
        last = found[max(found)]  # where a damaged file ends before it says that it does
        return [found.get(place, last) for place in wanted]
    except (OSError, ValueError, IndexError, av.FFmpegError) as error:
        raise LoadError(f"the video {os.fspath(path)} cannot be read: {error}.") from error


def choose_places(frames: int, count: int) -> list[int]:
    """So many places at equal distances among the frames of a video.

    Raises
    ------
    ValueError
        If there are no frames.
    """
    if frames < 1:
        raise ValueError("it has no frames")
    if count == 1:
        return [0]
    # Halves are rounded down, as truncation of numpy's linspace does in Video-LLaVA.
    return [place * (frames - 1) // (count - 1) for place in range(count)]


def _count_frames(path: str | os.PathLike[str]) -> int:
    """How many frames there are: what a file says of it may be wrong, so packets are counted."""
    import av

    with av.open(os.fspath(path)) as container:
        return sum(1 for packet in container.demux(video=0) if packet.size)
