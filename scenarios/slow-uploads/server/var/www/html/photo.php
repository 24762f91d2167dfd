<?php
// A photo that was sent: PHP has all of it before this line.
echo 'Thank you: ', strlen(file_get_contents('php://input')), ' bytes';
