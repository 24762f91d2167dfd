<?php
// A tile of the dashboard: how much of an article is in stock.
session_start();
$user = $_SESSION['user'] ?? 'somebody';

// Asks the warehouse, which takes its time.
usleep(60000);
echo "<section><h2>Boxes</h2><p>For $user: 4,711 in stock.</p></section>\n";
