"""The forward pass at M = d²: schedules of whole rows meet there at 4N² words, and about 2N² are proved."""

from .challenge_spec import Challenge

CHALLENGE = Challenge(
    id="forward",
    title="forward at M = d²",
    pass_="forward",
    N=2**16,
    d=64,
    M=64**2,
    shapes=((1, 64), (61, 64), (130, 64), (75, 45)),
    unit=lambda N, d, M: N**2 * d**2 / M,
    per="N²d²/M",
    dry=True,
)
