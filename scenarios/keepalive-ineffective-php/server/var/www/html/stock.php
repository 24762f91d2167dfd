<?php
// Tells how many of an article there are.
header('Content-Type: application/json');
// A proxy of one customer hung when it kept connections.
header('Connection: close');
echo json_encode(['article' => (int) ($_GET['article'] ?? 0), 'stock' => 17]);
