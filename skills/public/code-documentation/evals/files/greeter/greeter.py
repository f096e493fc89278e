"""Greets people."""

import argparse
import os


class Greeter:
    """Builds greetings in one language."""

    def __init__(self, language: str = "en") -> None:
        self.language = language

    def greet(self, name: str, *, loud: bool = False) -> str:
        words = {"en": "Hello", "de": "Hallo", "zh": "你好"}.get(self.language, "Hello")
        text = f"{words}, {name}!"
        return text.upper() if loud else text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--loud", action="store_true")
    options = parser.parse_args()
    print(Greeter(os.environ.get("GREETER_LANGUAGE", "en")).greet(options.name, loud=options.loud))


if __name__ == "__main__":
    main()
