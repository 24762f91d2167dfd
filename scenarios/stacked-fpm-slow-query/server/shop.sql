-- 2,000 articles, and what 250,000 customers wrote about them.
CREATE DATABASE shop;
USE shop;
CREATE TABLE article (number INT PRIMARY KEY, section INT NOT NULL, name VARCHAR(80) NOT NULL, KEY (section));
INSERT INTO article SELECT seq, seq MOD 100, CONCAT('Article ', seq) FROM seq_1_to_2000;
CREATE TABLE review (
    id INT PRIMARY KEY AUTO_INCREMENT,
    article INT NOT NULL,
    stars TINYINT NOT NULL,
    text VARCHAR(200) NOT NULL
);
INSERT INTO review (article, stars, text)
    SELECT 1 + seq MOD 2000, 1 + seq MOD 5, CONCAT('It is as it is, says customer ', seq, '.') FROM seq_1_to_250000;
CREATE USER shop@localhost IDENTIFIED BY 'shop';
GRANT SELECT ON shop.* TO shop@localhost;
