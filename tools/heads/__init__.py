"""What made `iocourse/data/heads.npz`: attention heads of a trained model, computed and chosen."""
