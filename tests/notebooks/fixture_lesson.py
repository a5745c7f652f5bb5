# %% [markdown]
# # Adding two numbers
#
# **What you will learn**: what the builder does with a source.
#
# **Prerequisites**: none. **Time**: 5 minutes. Signs are explained on the [notation](notation.md) page.
#
# <!-- exercises -->

# %% tags=["setup"]
import os
import struct
import zlib

from IPython.display import Image


def check(exercise_id, function, *numbers, answer):
    """A check like those of the lessons, which raises only if IOCOURSE_STRICT is 1."""
    try:
        passed = function(*numbers) == answer
    except NotImplementedError:
        passed = False
    print(f"{exercise_id}:", "every property holds" if passed else "not yet")
    if not passed and os.environ.get("IOCOURSE_STRICT") == "1":
        raise AssertionError(exercise_id)


def predict(question, answer=None):
    print(question, answer)


# %% [markdown]
# A picture, and a value.


# %%
def chunk(kind, data):
    check_sum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check_sum


header = chunk(b"IHDR", struct.pack(">2I5B", 8, 8, 8, 0, 0, 0, 0))
pixels = chunk(b"IDAT", zlib.compress((b"\0" + bytes(range(0, 256, 32))) * 8))
Image(b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b""), alt="a grey ramp")

# %% [markdown]
# **Predict** (guess). How much is it?

# %% tags=["predict"]
predict("2 + 3 =", 5)  # > predict("2 + 3 =")

# %% [markdown]
# ## Exercise 0A
#
# <!-- exercise 0A --> Here it is a sum of two.


# %% tags=["exercise"] name="ex-0A"
def add(a, b):
    """The sum of two numbers."""
    ### BEGIN SOLUTION one line is enough
    c = a + b
    return c
    ### END SOLUTION


# %% tags=["check"] name="check-0A"
check("0A", add, 2, 3, answer=5)

# %% tags=["solution-only"]
add(20, 22)

# %% [markdown]
# ## Misconceptions
#
# None that matter here.
#
# ## Take-away
#
# One source, two notebooks.
#
# ## References
#
# The builder itself.

# %% [raw] name="about-0A"
# title = "A sum"
# difficulty = 1
# importance = 4
# minutes = 5
# hints = ["Two numbers.", "One sign between them.", "The sign is a plus."]
