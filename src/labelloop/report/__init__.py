"""Figures and tables for people (step 5 of 5), drawn from what is stored. Needs the extra `report`, when it draws."""
