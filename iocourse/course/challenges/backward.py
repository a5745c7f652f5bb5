"""The backward pass where M is far above d²: between 12 and 14 times N²d²/M words."""

from .challenge_spec import Challenge

CHALLENGE = Challenge(
    id="backward",
    title="backward, between 12 and 14",
    pass_="backward",
    N=2**20,
    d=32,
    M=64 * 32**2,
    shapes=((1, 32), (61, 32), (1400, 32), (130, 21)),
    unit=lambda N, d, M: N**2 * d**2 / M,
    per="N²d²/M",
    arrays=("Q", "K", "V", "O", "dO", "LSE"),
    inputs=("Q", "K", "V", "dO"),
    dry=True,
    whole_rows=True,
)
