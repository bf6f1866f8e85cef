/**
 * Writes the corpus of `npm run bench:kb` (see README.md): an invented country told in short passages, Chinese and
 * English, and questions of which it is known where their answers stand. The same files with every run.
 */
import { writeFileSync } from "node:fs";
import { kindsOfChinese, kindsOfEnglish, type Kind } from "./kinds.ts";

export interface Passage {
  readonly id: string;
  readonly language: "en" | "zh";
  readonly title: string;
  readonly text: string;
}

export interface Question {
  readonly question: string;
  readonly passage: string;
  readonly language: Passage["language"];
  /** `named`: says what it is about; `described`: only what is known of it; `blurred`: as people type it. */
  readonly kind: "named" | "described" | "blurred";
}

const perKind = 120;
const askedPerKind = 12;

/** Numbers that look drawn at random (mulberry32), equal in every run. */
function drawing(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below);
  };
}

/** A letter left out of an English text, two characters of a Chinese one in the wrong order. */
function blur(text: string, language: Passage["language"], draw: (below: number) => number): string {
  const at = 2 + draw(Math.max(1, Math.floor(text.length / 2)));
  if (language === "en") return text.slice(0, at) + text.slice(at + 1);
  return text.slice(0, at) + text.slice(at + 1, at + 2) + text.slice(at, at + 1) + text.slice(at + 2);
}

const passages: Passage[] = [];
const questions: Question[] = [];

function tell(kind: Kind, language: Passage["language"], number: number): void {
  const draw = drawing(number * 7_919 + (language === "en" ? 1 : 2));
  const names = new Set<string>();
  for (let at = 0; at < perKind; at += 1) {
    let name = kind.name(draw);
    while (names.has(name)) name = kind.name(draw);
    names.add(name);
    const told = kind.tell(name, draw);
    const id = `${language}-${kind.id}-${at}`;
    passages.push({ id, language, title: name, text: told.text });
    if (at >= askedPerKind) continue;
    const [named, described] = [
      told.named[at % told.named.length] ?? "",
      told.described[at % told.described.length] ?? "",
    ];
    if (at % 3 === 0) questions.push({ question: named, passage: id, language, kind: "named" });
    if (at % 3 === 1) questions.push({ question: described, passage: id, language, kind: "described" });
    if (at % 3 === 2) questions.push({ question: blur(named, language, draw), passage: id, language, kind: "blurred" });
  }
}

kindsOfEnglish.forEach((kind, at) => tell(kind, "en", at));
kindsOfChinese.forEach((kind, at) => tell(kind, "zh", at));

function write(name: string, lines: readonly object[]): void {
  writeFileSync(new URL(name, import.meta.url), `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`);
}
write("corpus.jsonl", passages);
write("questions.jsonl", questions);
console.log(`${passages.length} passages, ${questions.length} questions`);
