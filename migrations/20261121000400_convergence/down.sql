DROP TABLE convergence.placements;
DROP TABLE convergence.nodes;
DROP SCHEMA convergence;
