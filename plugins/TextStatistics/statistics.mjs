/** A synchronous VCP plugin in Node: arguments as JSON on standard input, one JSON object on standard output. */
import { readFileSync } from "node:fs";

const { command = "count", text = "" } = JSON.parse(readFileSync(0, "utf8") || "{}");
const words = [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)].flatMap(
  ({ segment, isWordLike }) => (isWordLike ? [segment.toLowerCase()] : []),
);

const commands = {
  count: () => ({
    characters: [...text].length,
    words: words.length,
    lines: text === "" ? 0 : text.split("\n").length,
  }),
  frequent: () => {
    const counts = new Map();
    for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
    const ordered = [...counts].sort((a, b) => b[1] - a[1]);
    return Object.fromEntries(ordered.slice(0, Number(process.env.MOST_WORDS ?? 5)));
  },
};

const run = Object.hasOwn(commands, command) ? commands[command] : undefined;
const answer =
  run === undefined
    ? { status: "error", error: `There is no command '${command}'; known: ${Object.keys(commands).join(", ")}.` }
    : { status: "success", result: run() };
process.stdout.write(JSON.stringify(answer));
