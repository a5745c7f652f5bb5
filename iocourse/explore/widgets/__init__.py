"""The explorers: thin shells of controls, each around one figure."""
