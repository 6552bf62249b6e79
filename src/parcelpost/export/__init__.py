"""Stored records as tables for other programs: what columns they have, and one writer for each format of files."""
