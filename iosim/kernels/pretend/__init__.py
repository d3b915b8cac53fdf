"""What a user's file asks for and is not there: a GPU, PyTorch's tensors on it, and packages."""
