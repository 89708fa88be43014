-- The table holds claims: space freed by an eviction and held for the preemptor. Reservations are the planner's, and
-- are not stored.
ALTER TABLE reservations RENAME TO claims;
ALTER TABLE claims RENAME CONSTRAINT reservations_pkey TO claims_pkey;
ALTER INDEX reservations_live RENAME TO claims_live;
