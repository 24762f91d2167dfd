-- 200 photos of 60 kB.
CREATE DATABASE photos;
USE photos;
CREATE TABLE photo (number INT PRIMARY KEY, content MEDIUMBLOB NOT NULL);
INSERT INTO photo SELECT seq, LEFT(REPEAT(SHA2(seq, 512), 500), 60000) FROM seq_1_to_200;
CREATE USER photos@localhost IDENTIFIED BY 'photos';
GRANT SELECT ON photos.* TO photos@localhost;
