-- 5,000 articles in 50 sections.
CREATE DATABASE shop;
USE shop;
CREATE TABLE article (
    number INT PRIMARY KEY,
    section INT NOT NULL,
    name VARCHAR(80) NOT NULL,
    price DECIMAL(8, 2) NOT NULL,
    KEY (section)
);
INSERT INTO article
    SELECT seq, seq MOD 50, CONCAT('Article ', seq), 1 + seq MOD 90 FROM seq_1_to_5000;
CREATE USER shop@localhost IDENTIFIED BY 'shop';
GRANT SELECT ON shop.* TO shop@localhost;
