-- 4,000 articles with all that the makers write about them, 9 MB.
CREATE DATABASE shop;
USE shop;
CREATE TABLE article (
    number INT PRIMARY KEY,
    name VARCHAR(100) CHARACTER SET ascii NOT NULL,
    price DECIMAL(8, 2) NOT NULL,
    maker VARCHAR(500) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    made_of VARCHAR(500) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    made_for VARCHAR(500) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    remarks VARCHAR(500) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
);
INSERT INTO article
    SELECT seq, CONCAT('Article ', seq, ' of the list for those who buy much, as it is today'), 1 + seq MOD 90,
        LEFT(REPEAT(SHA1(seq), 13), 500), LEFT(REPEAT(SHA1(seq + 1), 13), 500),
        LEFT(REPEAT(SHA1(seq + 2), 13), 500), LEFT(REPEAT(SHA1(seq + 3), 13), 500)
    FROM seq_1_to_4000;
CREATE USER shop@localhost IDENTIFIED BY 'shop';
GRANT SELECT ON shop.* TO shop@localhost;
