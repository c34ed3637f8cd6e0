DROP TABLE convergence.parts;
DROP TABLE convergence.placements;
DROP FUNCTION convergence.count_placements();
DROP TABLE convergence.nodes;
DROP SCHEMA convergence;
