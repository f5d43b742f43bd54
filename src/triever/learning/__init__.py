"""How systems are taught: what several of them share, apart from what each of them is."""
