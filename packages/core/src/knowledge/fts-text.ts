/**
 * Texts as the full-text index knows them. Its tokenizer divides at what is no letter or digit, so that a
 * sentence in Chinese would be one word: characters of scripts that are written without spaces are given to it in
 * pairs, and the last one of a run alone, so that one character is found as the beginning of a pair or by itself.
 * Queries are made of the same pieces, each of them quoted: nothing that somebody asks is an operator.
 */

/** Written without spaces, or with endings that words are found without. */
const unspaced = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}ー`;
const runs = new RegExp(`[${unspaced}]+|[\\p{L}\\p{N}\\p{M}\\p{Co}]+`, "gu");
const isUnspaced = new RegExp(`^[${unspaced}]`, "u");

/** More say no more, and each is looked up. */
const mostTerms = 64;
const longestWord = 200;

/** Of what is indexed: it gains nothing from a word that nobody types. */
export function toFtsText(text: string): string {
  const tokens: string[] = [];
  for (const run of runsOf(text)) {
    if (!isUnspaced.test(run)) {
      tokens.push(run);
      continue;
    }
    const characters = Array.from(run);
    for (const [at, character] of characters.entries()) tokens.push(character + (characters[at + 1] ?? ""));
  }
  return tokens.join(" ");
}

/** What an index finds all that has any of the query's terms with; undefined: there is nothing to look for. */
export function toFtsQuery(query: string): string | undefined {
  const terms = new Set<string>();
  for (const run of runsOf(query)) {
    for (const term of termsOf(run)) {
      terms.add(term);
      if (terms.size >= mostTerms) return [...terms].join(" OR ");
    }
  }
  return terms.size === 0 ? undefined : [...terms].join(" OR ");
}

function runsOf(text: string): readonly string[] {
  return (text.normalize("NFKC").toLowerCase().match(runs) ?? []).map((run) =>
    isUnspaced.test(run) ? run : run.slice(0, longestWord),
  );
}

function* termsOf(run: string): Generator<string> {
  if (!isUnspaced.test(run)) {
    yield quoted(run);
    return;
  }
  const characters = Array.from(run);
  const [only] = characters;
  if (characters.length === 1 && only !== undefined) yield `${quoted(only)}*`;
  for (let at = 1; at < characters.length; at += 1) yield quoted(`${characters[at - 1]}${characters[at]}`);
}

/** A string of FTS5, whatever it holds. */
function quoted(term: string): string {
  return `"${term.replaceAll('"', '""')}"`;
}
