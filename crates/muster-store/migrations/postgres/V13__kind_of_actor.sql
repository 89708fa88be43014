-- Two actors may share a name: a token and the person at the machine. Acts recorded before this version have no kind.
ALTER TABLE audit ADD COLUMN actor_kind TEXT;
