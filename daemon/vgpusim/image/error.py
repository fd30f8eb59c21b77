"""Why an image cannot be used: the CUresult a client gets and one line for the log."""

INVALID_VALUE = 1
INVALID_IMAGE = 200
NO_BINARY_FOR_GPU = 209
INVALID_PTX = 218
NOT_SUPPORTED = 801


class ImageError(Exception):
    """An image that cannot be used. `result` is a CUresult; the message is one line."""

    def __init__(self, result: int, message: str) -> None:
        super().__init__(" ".join(message.split()))
        self.result = result
