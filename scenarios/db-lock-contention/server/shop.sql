-- Orders, and the number of the last one: numbers of invoices must have no gaps.
CREATE DATABASE shop;
USE shop;
CREATE TABLE invoice_number (year INT PRIMARY KEY, last INT NOT NULL);
INSERT INTO invoice_number VALUES (2026, 0);
CREATE TABLE invoice (number INT PRIMARY KEY, article INT NOT NULL, taken_from VARCHAR(20) NOT NULL);
CREATE USER shop@localhost IDENTIFIED BY 'shop';
GRANT SELECT, INSERT, UPDATE ON shop.* TO shop@localhost;
