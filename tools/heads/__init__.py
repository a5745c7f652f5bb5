"""Program that made `iocourse/data/heads.npz`: compute and select attention heads of a trained model."""
