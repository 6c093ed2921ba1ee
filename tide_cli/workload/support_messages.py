"""Messages of customers to the support of a shop."""

from __future__ import annotations

import random


def support_message(rng: random.Random) -> str:
    """One prompt: who writes, about which order, what is wrong, what is wanted."""
    product = f"{rng.choice(_COLOURS)} {rng.choice(_PRODUCTS)}"
    month = rng.choice(_MONTHS)
    order = rng.randint(100000, 999999)
    said = {"product": product, "days": rng.randint(3, 40), "amount": f"{rng.randint(5, 400)}.{rng.randint(0, 99):02d}"}
    parts = [
        rng.choice(_OPENINGS).format(shop=rng.choice(_SHOPS)),
        rng.choice(_ORDERS).format(product=product, day=rng.randint(1, 28), month=month, order=order),
        rng.choice(_PROBLEMS).format(**said),
        rng.choice(_DETAILS),
        rng.choice(_WISHES).format(**said),
    ]
    signature = rng.choice(("Thanks, {}", "Best wishes, {}", "Regards, {}", "{}")).format(rng.choice(_NAMES))
    return f"{' '.join(parts)}\n\n{signature}"


_SHOPS = ("Northwind Home", "Birch & Son", "Kite Outdoor", "Pantry Lane", "Studio Ferro", "Blue Door", "Maple Works")
_OPENINGS = (
    "Hello {shop} team,",
    "Dear {shop},",
    "Hi, I am a customer of {shop}.",
    "Good morning, please help me with my {shop} order.",
    "Hello, I hope you can help.",
)
_ORDERS = (
    "On {month} {day} I ordered a {product} (order {order}).",
    "My order number is {order}: one {product}, placed on {month} {day}.",
    "This is about order {order} of {month} {day}, a {product}.",
    "I bought a {product} from you, order {order}, paid on {month} {day}.",
)
_PROBLEMS = (
    "It still has not arrived after {days} days.",
    "It arrived with a crack on one side.",
    "The parcel was empty when I opened it.",
    "I received the wrong size and the wrong colour.",
    "It stopped working after {days} days.",
    "I was charged {amount} twice.",
    "The tracking page has shown the same place for {days} days.",
    "The manual is missing and one screw does not fit.",
    "The discount code was not applied and I paid {amount} too much.",
    "I gave the wrong address by mistake.",
    "A part of it is scratched, although the box looked fine.",
    "It makes a loud noise whenever I switch it on.",
)
_DETAILS = (
    "I have already tried turning it off and on again.",
    "I have added a photo of it.",
    "I kept the box and the receipt.",
    "It was meant to be a present.",
    "I wrote to you last week but got no answer.",
    "I am leaving for a long trip soon.",
    "I really like your shop otherwise.",
    "My neighbour had the same trouble.",
)
_WISHES = (
    "Can I get a refund?",
    "How can I send it back?",
    "Please tell me what to do next.",
    "Could you send a new one?",
    "When will it be here?",
    "Can I change it for another {product}?",
    "Is this covered by the warranty?",
    "Could you cancel the order, please?",
    "Who pays for the return?",
)
_COLOURS = ("red", "green", "black", "white", "grey", "blue", "yellow", "brown", "silver", "purple")
_PRODUCTS = (
    "desk lamp", "rain jacket", "coffee grinder", "backpack", "office chair", "water bottle", "bread knife", "tent",
    "wool blanket", "wall clock", "bicycle pump", "toaster", "garden hose", "suitcase", "frying pan", "bookshelf",
    "headphones set", "yoga mat", "picture frame", "camping stove",
)  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_NAMES = (
    "Ada", "Bruno", "Chidi", "Dora", "Emil", "Fatima", "Goran", "Hanna", "Ivo", "Jun", "Karim", "Lena",
    "Mateo", "Nora", "Olga", "Pavel", "Rosa", "Sami", "Tess", "Yuki",
)  # fmt: skip
