/**
 * `config.env` and `.env` of a plugin's folder, read as plugins' own readers do: `KEY=value` lines, keys with
 * `. @ # % & ^ + _ -` in them, comments, quotes, `\n` in double quotes.
 */

const line =
  /^[ \t]*(?:export[ \t]+)?([\p{L}\p{N}_.@%&^+-][\p{L}\p{N}_.@#%&^+-]*)[ \t]*=[ \t]*("(?:\\.|[^"\\])*"|'[^']*'|`[^`]*`|[^\r\n#]*)/gmu;

/** Names and values in the order of the file; later ones of a name win. */
export function parseEnvFile(text: string): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const [, key = "", value = ""] of text.replace(/^\uFEFF/, "").matchAll(line)) {
    values.delete(key);
    values.set(key, unquote(value.trim()));
  }
  return values;
}

function unquote(value: string): string {
  const [quote] = value;
  if (value.length < 2 || !value.endsWith(quote ?? "") || (quote !== '"' && quote !== "'" && quote !== "`"))
    return value;
  const inner = value.slice(1, -1);
  if (quote !== '"') return inner;
  return inner.replaceAll(/\\([nrt"\\])/g, (_whole, letter: string) => escapes[letter] ?? letter);
}

const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t" };
