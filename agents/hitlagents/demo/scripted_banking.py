"""What the agent banking says when no real model is configured.

It transfers money and looks up balances: "Transfer $500 to account 12345 for rent.",
"send 20 to Electricity and 30 to Savings", "and another 200 to 777", "what is my balance?".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitlagents.demo.scripted import (
    MARK,
    Call,
    Item,
    Reply,
    Wish,
    is_negated,
    orders,
    short,
    small_talk,
    speak,
    step_texts,
    without_quotes,
)

HELP = (
    "I transfer money and look up balances. Try “transfer 500 to account 12345”, “send 20 "
    "to Electricity and 30 to Savings” or “what is my balance?”."
)
GREETING = f"Hello. {HELP}"
MAX_NAME = 100

#: How the tools' own successes begin.
SUCCESSES: Mapping[str, str] = {
    "transferMoney": "Transferred ",
    "lookup_balance": "Account ",
}


def reply(history: Sequence[Item]) -> Reply:
    """What banking says next, a pure function of the conversation."""
    return speak(history, Banking())


class Banking:
    """The part of the agent banking."""

    greeting = GREETING

    def steps(self, text: str, before: Sequence[Item]) -> list[list[Wish]]:
        plain, quoted = without_quotes(text)
        last = _last_transfer(before)
        if last is not None and not _VERB.search(plain):
            again = list(dict.fromkeys(_again(plain, quoted, last)))
            return [again] if again else []
        steps = [_wishes(step, quoted) for step in step_texts(plain, _VERB)]
        return [step for step in steps if step]

    def talk(self, text: str) -> str:
        return _talk(text)

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if tool == "lookup_balance":
            account = short(str(arguments.get("account", "")))
            return f"look up the balance of {account}"
        amount = short(str(arguments.get("amount", "")))
        return f"transfer {amount} to {short(str(arguments.get('toAccount', '')))}"

    def explains_itself(self, tool: str, result: str) -> bool:
        return result.startswith(SUCCESSES.get(tool, "\0"))


# Understanding a message

_VERB = re.compile(
    r"(?<!\S)(?P<balance>(?:what(?:['\u2019]s| is| are)?|show|check|see|tell me|look up|list"
    r"|get|and)(?: [^\s,;]+){0,4}? balances?(?: (?:of|on|for|in))?"
    r"|balances?(?: (?:of|on|for|in))?"
    r"|how much(?: [^\s,;]+){0,4}? (?:in|on|have|left|got)(?: (?:in|on))?"
    r"|what(?:['\u2019]s| is) (?:in|on))(?=[ ,.!?]|$)"
    r"|(?<!\S)(?P<transfer>transfer|send|pay|move|wire|remit)(?=[ ,]|$)",
    re.IGNORECASE,
)
#: A number with what people write around it: $500, 20.50, 1,250.00, -5, 75EUR.
_AMOUNT = re.compile(
    r"[^\w\s.,+\-\ue000]{0,3}(?P<sign>[+\-\u2212]?)[^\w\s.,+\-\ue000]{0,3}"
    r"(?P<number>\d[\d.,']{0,30})[^\w\s.,\ue000]{0,3}(?:[A-Za-z]{3})?"
)
# fmt: off
_TO = frozenset({"to", "into", "onto"})
_AND = frozenset({"and", "&", "plus", "also", ",", ";"})
_ACCOUNT = frozenset({"account", "acct", "account:", "number", "no", "nr"})
_FILLERS = _ACCOUNT | frozenset({"the", "my", "our", "a", "an", "your", "his", "her", "their"})
#: Where the name of an account ends.
_ENDS = _TO | _AND | frozenset({
    "account", "again", "as", "at", "because", "before", "by", "each", "for", "from", "if",
    "immediately", "in", "it", "me", "now", "on", "please", "soon", "thanks", "then", "them",
    "this", "that", "today", "tomorrow", "too", "via", "well", "with", "you", "asap"
})
_AGAIN = re.compile(
    r"(?:(?:and|also|plus|then|now|ok|okay|yes|please|great|thanks|,),? ){0,4}"
    r"(?:(?P<same>(?:the )?same|again|once more)|(?P<to>to(?= ))|(?P<more>another|one more)"
    r"|(?=\S*\d))",
    re.IGNORECASE,
)
# fmt: on


def _wishes(text: str, quoted: Sequence[str]) -> list[Wish]:
    """What one step asks for, in its order and without repeats."""
    wishes: dict[Wish, None] = {}
    for verb, rest in orders(text, _VERB):
        found = _balances if verb.lastgroup == "balance" else _transfers
        for wish in found(Words(rest, quoted)):
            wishes[wish] = None
    return list(wishes)


class Words:
    """The words after a verb, read one after the other. Punctuation is a word."""

    def __init__(self, text: str, quoted: Sequence[str]) -> None:
        self.words = re.findall(r"[,;](?=\s|$)|(?:[^\s,;]|[,;](?!\s|$))+", text)
        self.quoted = quoted
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.words)

    def peek(self, ahead: int = 0) -> str:
        """A word to come, in small letters and without a full stop; "" after the last."""
        index = self.at + ahead
        return (
            self.words[index].lower().rstrip(".!?") if index < len(self.words) else ""
        )

    def skip(self, words: frozenset[str]) -> None:
        while self.peek() in words and self:
            self.at += 1

    def amount(self) -> str | None:
        """An amount here, as the text of a JSON number. Not read on if there is none."""
        match = _AMOUNT.fullmatch(self.peek())
        number = _number(match["number"]) if match else None
        if match is None or number is None:
            return None
        self.at += 1
        return f"-{number}" if match["sign"] in {"-", "\u2212"} else number

    def account(self) -> str:
        """The account named here: a code, or a name of up to three words."""
        self.skip(_FILLERS)
        if mark := MARK.fullmatch(self.peek()):
            self.at += 1
            return self.quoted[int(mark[1])][:MAX_NAME]
        found: list[str] = []
        while self and len(found) < 3 and self.peek() not in _ENDS:
            word = self.words[self.at]
            bare = word.rstrip(".!?")
            if found and any(letter.isdigit() for letter in bare):
                break
            self.at += 1
            found.append(word)
            ended = bare != word and len(bare) > 3  # "Dr." goes on
            if ended or re.search(r"\d", bare):
                break
        return " ".join(found).rstrip(".!?").strip("#:'\"")[:MAX_NAME]

    def another_account(self) -> bool:
        """Whether an account follows for the same amount: "to 777 and 888". A number
        with a "to" before the next "and" is an amount."""
        word = self.words[self.at]
        if not (word[0].isupper() or MARK.match(word) or re.search(r"\d", word)):
            return False
        for ahead in range(1, 6):
            word = self.peek(ahead)
            if word in _TO:
                return False
            if not word or word in _AND:
                return True
        return True


def _transfers(words: Words, amount: str | None = None) -> Iterator[Wish]:
    """ "500 to 12345", "to 12345 500", "12345 500", "5 to A and 6 to B", "5 to A and B"."""
    account = ""
    joined = taken = False
    while words:
        word = words.peek()
        if word in _TO:
            words.at += 1
            account = words.account()
        elif joined and amount is not None and words.another_account():
            account = words.account()
        elif (number := words.amount()) is not None:
            if amount is None or joined or account or words.peek() in _TO:
                amount, taken = number, False
            elif not taken:
                amount, account = number, amount  # "pay 12345 100"
        elif amount is None and not account and word not in _FILLERS | _ENDS:
            account = words.account()  # "pay Landlord 500"
            words.at += not account
        else:
            words.at += 1
        if amount is not None and account:
            yield _transfer(amount, account)
            account, taken = "", True
        joined = word in _AND


def _transfer(amount: str, account: str) -> Wish:
    account_text = json.dumps(account, ensure_ascii=False)
    return Wish("transferMoney", f'{{"amount": {amount}, "toAccount": {account_text}}}')


def _balances(words: Words) -> Iterator[Wish]:
    """The accounts named after "balance of"; the main one where none is."""
    named = False
    while words:
        words.skip(_AND | _FILLERS | frozenset({"of", "on", "for", "in"}))
        account = words.account()
        if not account:
            break
        named = True
        yield _balance(account)
        if words.peek() not in _AND | frozenset({"account"}):
            break
        words.skip(frozenset({"account"}))
    if not named:
        yield _balance("Main")


def _balance(account: str) -> Wish:
    return Wish("lookup_balance", json.dumps({"account": account}, ensure_ascii=False))


def _again(text: str, quoted: Sequence[str], last: Mapping[str, Any]) -> Iterator[Wish]:
    """A message without a verb that goes on from the transfer before."""
    match = _AGAIN.match(text)
    if match is None:
        return
    same = bool(match["same"] or match["to"])
    begin = match.start("to") if match["to"] else match.end()
    amount = str(last["amount"]) if same else None
    found = list(_transfers(Words(text[begin:], quoted), amount))
    yield from found
    if found or match["to"]:
        return
    given = next(_numbers(Words(text[match.end() :], quoted)), None)
    if same or (match["more"] and given):
        yield _transfer(given or str(last["amount"]), str(last["toAccount"]))


def _numbers(words: Words) -> Iterator[str]:
    while words:
        if (number := words.amount()) is not None:
            yield number
        else:
            words.at += 1


def _number(text: str) -> str | None:
    """The text of a JSON number: "1,250.00" and "1.250,00" are 1250.00."""
    text = text.replace("'", "").rstrip(".,")
    mark = max(text.rfind("."), text.rfind(","))
    both = "." in text and "," in text
    grouped = text.count(",") > 1 or re.fullmatch(r"\d{1,3},\d{3}", text) is not None
    if text.count(".") > 1 and not both:
        grouped = re.fullmatch(r"\d{1,3}(?:\.\d{3})+", text) is not None
        if not grouped:
            return None
    if grouped and not both:
        mark = len(text)
    whole = re.sub(r"[.,]", "", text[:mark] if mark >= 0 else text)
    part = text[mark + 1 :] if 0 <= mark < len(text) else ""
    if not whole.isascii() or not (whole + part).isdigit():
        return None
    whole = whole.lstrip("0") or "0"
    return f"{whole}.{part}" if part else whole


def _last_transfer(before: Sequence[Item]) -> Mapping[str, Any] | None:
    """The arguments of the transfer before."""
    for item in reversed(before):
        if isinstance(item, Call) and item.tool == "transferMoney":
            try:
                arguments = json.loads(item.arguments, parse_float=str, parse_int=str)
            except ValueError:
                continue
            if isinstance(arguments, dict) and {"amount", "toAccount"} <= set(
                arguments
            ):
                return arguments
    return None


def _talk(text: str) -> str:
    words = text[:200].lower()
    if told := small_talk(text, "banking", HELP):
        return told
    if is_negated(words, _VERB):
        return "All right, I leave the money where it is."
    if re.search(r"(?<!\S)(transfer|send|pay|move|wire|remit)\b", words):
        return "How much, and to which account? Say “transfer 500 to account 12345”."
    return f"I did not understand that. {HELP}"
