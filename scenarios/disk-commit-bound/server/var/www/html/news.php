<?php
// Notes who was here, as each page of this site does.
$db = new mysqli('p:localhost', 'club', 'club', 'club');
$db->query("INSERT INTO visits (page) VALUES ('news')");
echo '<p>The choir meets on Thursday. Visit ', $db->insert_id, '</p>';
