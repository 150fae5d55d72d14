"""Every error a user can cause, one class per concern.

A message names the file or parameter, what was found and what was expected. Command line and node print it as
one line; a traceback is a bug of ours, never an answer to bad input.
"""


def one_line(error: BaseException) -> str:
    """What a library says of an error, fit to be quoted in a message."""
    return " ".join(str(error).split()) or type(error).__name__


class PlannerError(Exception):
    """Base of all errors that are explained to the user in one line."""


class CheckpointError(PlannerError):
    """A model directory, config, tokenizer or weight file that cannot be loaded as it stands."""


class UnsupportedModelError(CheckpointError):
    """A model that is recognised (or not) and that this version does not run."""


class DraftError(CheckpointError):
    """A draft that does not fit its target, or says too little of itself to tell."""


class EngineError(CheckpointError):
    """Exported graphs or built engines that are damaged, were made of something else, or cannot run here."""


class ObservationError(PlannerError):
    """An observation the model cannot be given: camera ids, number of frames, shapes, non-finite history."""


class ModelOutputError(PlannerError):
    """The model answered with something that is no plan, such as a non-finite value."""


class ImageError(PlannerError):
    """An image message that cannot be decoded: truncated, unknown encoding, wrong step or size."""


class BagError(PlannerError):
    """A recording that cannot be read or lacks what is asked of it."""


class ParameterError(PlannerError):
    """A command-line flag or node parameter outside what is accepted."""


class TrainingError(PlannerError):
    """Training data, a cache or a saved state that does not fit what is asked for."""


class WorkerError(PlannerError):
    """The worker that runs the model ended although nobody asked it to."""
