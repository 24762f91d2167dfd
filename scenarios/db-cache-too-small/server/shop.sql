-- 12,000 articles with their descriptions: some 25 MB.
CREATE DATABASE shop;
USE shop;
CREATE TABLE article (
    number INT PRIMARY KEY,
    name VARCHAR(80) NOT NULL,
    text VARCHAR(4000) NOT NULL
);
INSERT INTO article
    SELECT seq, CONCAT('Article ', seq), REPEAT(CONCAT('Words about article ', seq, '. '), 60)
    FROM seq_1_to_12000;
CREATE USER shop@localhost IDENTIFIED BY 'shop';
GRANT SELECT ON shop.* TO shop@localhost;
