"""Writes chats with an assistant that sends long answers, one chat per line, for `benchmarks/recall.py`.

The output is the same on every machine.

A user mentions personal facts while requesting advice; the assistant sends long answers with the same words. Weeks
later, the user asks a question about each fact. A policy that adds scores of neighbouring turns could be worse here:
every turn is next to a long text about its subject.
"""

from __future__ import annotations

import argparse
import json
import random
from datetime import UTC, datetime, timedelta

# Per subject: facts that the user mentions, each with a later question; words of the answers; a request for advice.
SUBJECTS: dict[str, tuple[list[tuple[str, str]], str, str]] = {
    "dogs": (
        [
            ("We took home a greyhound named {name} from the shelter in {town}.", "Which breed is the dog I adopted?"),
            ("{name} is allergic to chicken, the vet told us.", "What can my dog not eat?"),
            ("I pay {number} a month for the dog walker.", "How much does walking the dog cost me?"),
        ],
        "shelter breed vet leash puppy training diet walk treats vaccination chicken collar crate adoption",
        "How should I get a nervous dog used to the train?",
    ),
    "cycling": (
        [
            ("My commute by bike is {number} kilometres each way.", "How far do I ride to work?"),
            ("I bought a steel touring bike from a shop in {town}.", "Where did I get my touring bike?"),
            (
                "Last autumn I broke my left wrist when I slipped on tram tracks.",
                "Which bone did I injure on the bike?",
            ),
        ],
        "bike chain saddle commute tyres brakes helmet touring gears wrist handlebar kilometres tracks pump",
        "Which lights would you suggest for riding in the dark?",
    ),
    "baking": (
        [
            ("My sourdough starter is called {name} and is {number} weeks old.", "What is the name of my starter?"),
            ("I can only bake on Sundays, because of my shifts.", "On which day do I have time to bake?"),
            ("My oven does not get hotter than {number}0 degrees.", "What is the highest temperature of my oven?"),
        ],
        "sourdough starter oven flour crust hydration dough proofing degrees steam loaf rye yeast banneton",
        "Why does my bread stay flat in the middle?",
    ),
    "work": (
        [
            ("I moved from accounting to the logistics team in {month}.", "Which team did I join?"),
            ("My new manager {name} wants weekly reports.", "Who is my boss now?"),
            ("We are {number} people in the warehouse office.", "How many colleagues sit in my office?"),
        ],
        "manager team report meeting deadline logistics accounting colleague feedback office salary career",
        "How do I say no to extra meetings politely?",
    ),
    "travel": (
        [
            ("My sister {name} lives in {town} and I visit her every {month}.", "Where does my sister live?"),
            ("I get seasick, so ferries are out.", "Which kind of transport do I avoid?"),
            ("I have {number} days of leave left this year.", "How many holidays do I still have?"),
        ],
        "train ferry hotel luggage passport flight itinerary leave visit island museum ticket sister reservation",
        "Can you sketch a quiet week by the sea?",
    ),
    "garden": (
        [
            ("I rent an allotment of {number} square metres behind the station.", "How big is my allotment?"),
            ("Slugs ate all my lettuce, so I grow only beans and garlic now.", "What do I plant since the slugs came?"),
            ("My neighbour {name} waters everything while I am away.", "Who looks after my plants?"),
        ],
        "soil compost seeds lettuce slugs beans watering allotment garlic mulch pruning neighbour greenhouse frost",
        "When should I cut back the raspberries?",
    ),
    "music": (
        [
            ("I play the viola in an amateur orchestra in {town}.", "Which instrument do I play?"),
            ("We rehearse on Thursdays, and {name} conducts.", "Who conducts my orchestra?"),
            ("My bow was rehaired for {number} euros.", "What did the work on my bow cost?"),
        ],
        "viola bow rehearsal orchestra scales tempo tuning concert strings conductor practice rosin score",
        "How can I practise fast passages without getting stiff?",
    ),
    "health": (
        [
            ("My doctor says my iron is low, so I take tablets in the morning.", "Which tablets do I take?"),
            ("I sleep about {number} hours since the baby {name} came.", "How long do I sleep at night?"),
            ("I stopped drinking coffee in {month}.", "When did I give up coffee?"),
        ],
        "sleep doctor iron tablets coffee exercise vitamins headache routine stress baby morning breakfast",
        "What helps against being tired after lunch?",
    ),
}
NAMES = ["Pilar", "Otto", "Wanda", "Ilse", "Bruno", "Teodor", "Maud", "Anselm", "Frida", "Casper", "Nell", "Ludo"]
TOWNS = ["Leeds", "Porto", "Ghent", "Turin", "Malmo", "Graz", "Nantes", "Bergen"]
MONTHS = ["January", "February", "March", "April", "June", "September", "October", "November"]
OPENINGS = [
    "There are a few things to keep in mind about {a} and {b}.",
    "Good question: it depends on the {a}, and a little on the {b}.",
    "Many people begin with the {a} and forget the {b}.",
]
ADVICE = [
    "First look at the {a}, because the {b} follows from it.",
    "If the {a} gives you trouble, change the {b} before anything else.",
    "A good {a} is worth more than an expensive {b}, as most will tell you.",
    "Write down what you did with the {a} each week, and compare it with the {b}.",
    "Do not worry about the {a} in the beginning; the {b} matters more.",
    "It also helps to ask somebody who knows about {a} to look at your {b}.",
    "Should the {a} still bother you after two weeks, try another {b} for a while.",
]
THANKS = ["Thanks, I will try that.", "That makes sense.", "Okay, and what would you do first?", "Great, thank you!"]


def answer(rng: random.Random, words: list[str], count: int) -> str:
    sentences = []
    for number in range(count):
        a, b = rng.sample(words, 2)
        sentences.append(rng.choice(ADVICE if number else OPENINGS).format(a=a, b=b))
    return " ".join(sentences)


def chat(number: int) -> dict[str, object]:
    rng = random.Random(f"chat {number}")
    day = datetime(2024, 1, 8, 19, tzinfo=UTC)
    turns: list[dict[str, object]] = []
    questions: list[dict[str, object]] = []

    def add_turn(session: int, speaker: str, text: str) -> str:
        turn = f"S{session}:{len(turns) + 1}"
        date = day.isoformat()
        turns.append({"id": turn, "speaker": speaker, "text": text, "caption": "", "session": session, "date": date})
        return turn

    mentions = [(subject, fact) for subject, (facts, _, _) in SUBJECTS.items() for fact in facts]
    rng.shuffle(mentions)
    for session, (subject, (fact, question)) in enumerate(mentions, 1):
        _, words_text, request = SUBJECTS[subject]
        words = words_text.split()
        slots = {"name": rng.choice(NAMES), "town": rng.choice(TOWNS), "month": rng.choice(MONTHS)}
        fact = fact.format(**slots, number=rng.randrange(12, 30))
        evidence = add_turn(
            session, "user", f"{fact} {request}" if rng.random() < 0.6 else f"{request} By the way: {fact}"
        )
        add_turn(session, "assistant", answer(rng, words, rng.randrange(12, 24)))
        add_turn(session, "user", rng.choice(THANKS))
        a, b = rng.sample(words, 2)
        add_turn(session, "assistant", answer(rng, words, rng.randrange(8, 16)))
        add_turn(session, "user", f"And is there anything to know about {a} when it comes to {b}?")
        add_turn(session, "assistant", answer(rng, words, rng.randrange(10, 20)))
        questions.append(
            {"id": f"chat-{number}#{session}", "text": question, "evidence": [evidence], "category": "told"}
        )
        day += timedelta(days=rng.randrange(1, 9))
    return {"conversation": f"chat-{number}", "turns": turns, "questions": questions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=6)
    options = parser.parse_args()
    for number in range(1, options.chats + 1):
        print(json.dumps(chat(number)))


if __name__ == "__main__":
    main()
