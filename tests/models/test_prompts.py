"""Prompts and the titles behind them are tokenised as the whole text is, and never lose their own words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from triever.docids.schemes import Pieces
from triever.models.backbones import learn_tokenizer
from triever.models.prompts import ASK, PROMPTS, Prompt, Prompts
from triever.models.tokens import TextTokenizer

TEXTS = [ASK, 'Question: who was born in Paris? Paris Hilton (film), New York\'s "Big Apple"\nThe title is here'] * 3


def byte_level(add_prefix_space: bool) -> TextTokenizer:
    """As GPT-2 and Llama 3 have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS, trainers.BpeTrainer(special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False)
    )
    return TextTokenizer(tokenizer, pad=0, after=[0])


def with_blanks() -> TextTokenizer:
    """As Llama 2 has it: a blank is a part of a word, and one is put before every text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<end>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    letters = sorted({letter for text in TEXTS for letter in text} | {"▁"})
    pieces = {piece: at for at, piece in enumerate(["<end>", *letters, "▁P", "▁Pa", "▁Par", "▁Pari", "▁Paris"])}
    merges = [("▁", "P"), ("▁P", "a"), ("▁Pa", "r"), ("▁Par", "i"), ("▁Pari", "s")]
    tokenizer.model = models.BPE(vocab=pieces, merges=merges, unk_token="<end>")
    return TextTokenizer(tokenizer, pad=0, before=[0], after=[0])


def with_first_blanks() -> TextTokenizer:
    """As Mistral has it: a blank is put before a text, and not behind a mark."""
    tokenizer = with_blanks().inner
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens(["<end>"])
    return TextTokenizer(tokenizer, pad=0, before=[0], after=[0])


TOKENIZERS = {
    "bytes": byte_level(False),
    "bytes with a prefix": byte_level(True),
    "blanks": with_blanks(),
    "first blanks": with_first_blanks(),
    "scratch": learn_tokenizer(TEXTS, 400),
}
WORDS = st.text("PParis Hlton(),'New\n?", max_size=14)


def pieces(name: str, prompt: Prompt) -> Pieces:
    return Pieces(TOKENIZERS[name].inner, TOKENIZERS[name].after[-1], prompt.end)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(title=WORDS.filter(str.strip), query=WORDS)
def test_a_title_has_the_tokens_that_it_has_behind_the_prompt(name: str, title: str, query: str) -> None:
    tokenizer, clean = TOKENIZERS[name], " ".join(title.split())
    for template in (*PROMPTS.values(), "{query} The title is: ", "{query}\nTitle:\n"):
        prompt = Prompt(template)
        (symbols,) = pieces(name, prompt).symbols([title])
        if prompt.template.endswith("{query}") and (query != query.rstrip() or not query):
            continue  # blanks at the end of a query, which a title would follow, belong to no word
        space = "" if prompt.template.endswith("\n") else " "
        whole = prompt.template.replace("{query}", query) + space + clean
        assert [*prompt.ids(tokenizer, [query], 10_000)[0], *symbols] == [
            *tokenizer.before,
            *tokenizer.ids([whole], special=False)[0],
        ]


def test_paris_behind_a_prompt_is_one_word() -> None:
    (symbols,) = pieces("blanks", Prompts.of("").asking).symbols(["Paris"])
    assert TOKENIZERS["blanks"].pieces(symbols) == ["▁Paris"]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(
    query=st.text("Paris who? ☃", max_size=60), room=st.integers(0, 40), template=st.sampled_from([*PROMPTS.values()])
)
def test_a_long_query_is_cut_and_the_words_around_it_never(name: str, query: str, room: int, template: str) -> None:
    tokenizer, prompt = TOKENIZERS[name], Prompt(template)
    around = [len(part) for part in prompt.around(tokenizer)]
    limit = len(prompt.ids(tokenizer, [""], 10_000)[0]) + room
    (ids,) = prompt.ids(tokenizer, [query], limit)
    whole = prompt.ids(tokenizer, [query], 10_000)[0]
    assert len(ids) <= limit
    assert ids == whole or len(ids) < len(whole)
    assert len(whole) > limit or ids == whole
    text, words = tokenizer.text(ids), ASK.lower() if name == "scratch" else ASK
    assert words.replace(" ", "") in text.replace("▁", "").replace(" ", "")
    assert sum(around) <= limit + 1


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text("Paris who? ☃\ud800", max_size=30), limit=st.integers(0, 12))
def test_a_text_is_cut_behind_its_first_tokens(name: str, text: str, limit: int) -> None:
    tokenizer = TOKENIZERS[name]
    (short,) = tokenizer.cut([text], limit)
    assert text.startswith(short)
    assert short == text or len(tokenizer.ids([text], special=False)[0]) > limit
    if limit >= 4 and short != text:  # a letter may have several tokens
        assert short


def test_escapes_of_a_shell_are_line_breaks_and_tabs() -> None:
    assert Prompts.of(r"a\t{query}\nTitle:") == Prompts.of("a\t{query}\nTitle:")
    assert Prompts.of(r"{query}\nTitle:").asking.template == "{query}\nTitle:"
    assert Prompt(r"{query}\n").template == r"{query}\n", "what an artifact holds stays as it is"


MARKED = (
    "Q: {query}<end>\nTitle:",
    "<end>user\nParis {query}",
    "{query}<end><end>",
    "<end>{query}",
    "a <end> b {query}",
)


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name != "scratch"])
@given(query=WORDS, template=st.sampled_from(MARKED))
def test_marks_of_a_template_are_marks(name: str, query: str, template: str) -> None:
    """The oracle is a tokenizer for which marks are marks everywhere, over the whole text."""
    tokenizer, prompt = TOKENIZERS[name], Prompt(template)
    oracle = Tokenizer.from_str(tokenizer.inner.to_str())
    expected = oracle.encode(template.replace("{query}", query), add_special_tokens=False).ids
    assert prompt.ids(tokenizer, [query], 10_000) == [[*tokenizer.before, *expected]]
    assert 0 in expected  # the mark


@pytest.mark.parametrize("name", ["bytes", "bytes with a prefix"])
@given(query=WORDS, place=st.integers(0, 14), template=st.sampled_from([*MARKED, *PROMPTS.values()]))
def test_marks_in_a_query_are_text(name: str, query: str, place: int, template: str) -> None:
    tokenizer, written = TOKENIZERS[name], f"{query[:place]}<end>{query[place:]}"
    (ids,) = Prompt(template).ids(tokenizer, [written], 10_000)
    assert ids.count(0) == template.count("<end>")
    assert tokenizer.text(tokenizer.ids([written], special=False)[0]).strip() == written.strip()


@pytest.mark.parametrize("name", ["bytes", "bytes with a prefix"])
def test_a_title_that_is_a_mark_has_a_docid(name: str) -> None:
    for made in (pieces(name, Prompt("{query} is: ")), Pieces.of(TOKENIZERS[name].inner)):
        (symbols,) = made.symbols(["<end>"])
        assert "".join(map(made.shown, symbols)).endswith("<end>")
        assert made.stop not in symbols
