"""What the RCA paper has, and where it is here."""

from vicinal.papers._contents import Entry

CONTENTS: list[Entry] = []
