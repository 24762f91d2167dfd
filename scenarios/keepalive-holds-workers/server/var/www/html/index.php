<?php
// The headlines come from the agency, which takes 20 ms.
usleep(20000);
?>
<!doctype html>
<title>News</title>
<link rel="stylesheet" href="/style.css">
<nav><img src="/logo.svg" alt="News"></nav>
<p>What happened today: a bridge was opened, and two trees fell.</p>
