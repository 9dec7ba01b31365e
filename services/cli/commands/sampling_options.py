"""Options on how a language model's next token is chosen; each is the field of that name in `SamplingSettings`."""

from typing import Annotated

import typer

_PANEL = "Sampling"

MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        envvar="INFERPLANE_MAX_TOKENS",
        help="Tokens to make at most.",
        show_default="as many as there is room for",
        rich_help_panel=_PANEL,
    ),
]
MinTokens = Annotated[
    int | None,
    typer.Option(
        envvar="INFERPLANE_MIN_TOKENS",
        help="Nothing ends the text before so many tokens.",
        show_default="0",
        rich_help_panel=_PANEL,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        "-t",
        envvar="INFERPLANE_TEMPERATURE",
        help="0: always the likeliest token.",
        show_default="1",
        rich_help_panel=_PANEL,
    ),
]
ChatTemperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        "-t",
        envvar="INFERPLANE_TEMPERATURE",
        help="0: always the likeliest token.",
        rich_help_panel=_PANEL,
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        envvar="INFERPLANE_TOP_K",
        help="Only so many of the likeliest tokens.",
        show_default="all",
        rich_help_panel=_PANEL,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        envvar="INFERPLANE_TOP_P",
        help="Only the likeliest that together have this probability.",
        show_default="1",
        rich_help_panel=_PANEL,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        envvar="INFERPLANE_MIN_P",
        help="Only tokens at least this share as likely as the likeliest.",
        show_default="0",
        rich_help_panel=_PANEL,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        envvar="INFERPLANE_REPETITION_PENALTY",
        help="Above 1: tokens that were there become less likely.",
        show_default="1",
        rich_help_panel=_PANEL,
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        envvar="INFERPLANE_PRESENCE_PENALTY",
        help="Taken off the score of each token that is in the text so far.",
        show_default="0",
        rich_help_panel=_PANEL,
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        envvar="INFERPLANE_FREQUENCY_PENALTY",
        help="The same, once for each time that the token is there.",
        show_default="0",
        rich_help_panel=_PANEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        envvar="INFERPLANE_SEED",
        help="The same seed gives the same text.",
        show_default="another each time",
        rich_help_panel=_PANEL,
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        envvar="INFERPLANE_STOP",
        metavar="TEXT",
        help="Ends the answer, and is not part of it; may be given again.",
        show_default="none",
        rich_help_panel=_PANEL,
    ),
]
StopTokenIds = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-token-id",
        envvar="INFERPLANE_STOP_TOKEN_IDS",
        metavar="ID",
        help="The same of a token, by its id; may be given again.",
        show_default="none",
        rich_help_panel=_PANEL,
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        envvar="INFERPLANE_IGNORE_EOS",
        help="The model's own end of text ends nothing.",
        show_default="off",
        rich_help_panel=_PANEL,
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--n",
        envvar="INFERPLANE_N",
        help="How many answers.",
        show_default="1",
        rich_help_panel=_PANEL,
    ),
]
Logprobs = Annotated[
    bool,
    typer.Option(
        "--logprobs",
        envvar="INFERPLANE_LOGPROBS",
        help="How likely each token was.",
        show_default="off",
        rich_help_panel=_PANEL,
    ),
]
TopLogprobs = Annotated[
    int | None,
    typer.Option(
        envvar="INFERPLANE_TOP_LOGPROBS",
        metavar="COUNT",
        help="Also so many of the likeliest at each place.",
        show_default="none",
        rich_help_panel=_PANEL,
    ),
]
