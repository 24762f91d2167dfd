<?php
// A photo, if the agency lets it be seen.
$number = random_int(1, 200);
$db = new mysqli('localhost', 'photos', 'photos', 'photos');
$photo = $db->query("SELECT content FROM photo WHERE number = $number")->fetch_row()[0];
if (file_get_contents("http://licences/licence?photo=$number") !== 'granted') {
    http_response_code(403);
    exit;
}
header('Content-Type: image/jpeg');
header('Content-Length: ' . strlen($photo));
echo $photo;
