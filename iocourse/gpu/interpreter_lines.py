"""Lines of lessons about Triton's interpreter, and their replacements where kernels are compiled."""

COMPILED_INSTEAD = {
    'os.environ["TRITON_INTERPRET"] = "1"': 'os.environ["TRITON_INTERPRET"] = "0"',
    "assert kernels.INTERPRETED": "assert not kernels.INTERPRETED",
}
