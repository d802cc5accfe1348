"""The arrays of `fastcmdp.io.toolbox` in MATLAB's `.mat` files."""

from __future__ import annotations

from fastcmdp.files import replacing
from fastcmdp.io import matfile, toolbox
from fastcmdp.io.description import Description
from fastcmdp.io.place import Place


def read(place: Place) -> Description:
    """The description in a `.mat` file of version 5 to 7."""
    return toolbox.described(matfile.read(place.path), place)


def write(description: Description, place: Place) -> None:
    """Write a compressed `.mat` file, sparse unless it is small."""
    arrays = toolbox.arrays_for(description, mat=True)
    with replacing(place.path) as file:
        matfile.write(arrays, file)
