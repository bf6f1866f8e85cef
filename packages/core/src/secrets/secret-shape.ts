/**
 * What is plainly a secret, by its own form or by what it is called. Definitions and names of credentials are shown to
 * callers and models and stand in addresses and records, so a secret that was written there must not get that far.
 */

/** Marks that issuers put before their tokens, our own keys among them; what follows is no words. */
const marks = /^(?:(?:sk|pk|rk)[-_]|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|shp(?:at|ss)_|SG\.|ya29\.|ty_)/;
const jumble = /(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16}/;
/** Forms that are theirs alone. */
const forms = /^(?:AKIA|ASIA)[A-Z0-9]{16}$|^AIza[\w-]{30,40}$|^eyJ[\w-]{10,}\.[\w-]{10,}/;

export function isToken(text: string): boolean {
  return forms.test(text) || (marks.test(text) && jumble.test(text));
}

const hexadecimal = /^(?:[0-9a-f]{32,}|[0-9A-F]{32,})$/;

/** Is it a token, or 32 and more letters of both cases and digits in a jumble? Names that people give have words. */
export function looksLikeSecret(text: string): boolean {
  if (isToken(text) || hexadecimal.test(text)) return true;
  return (text.match(/[A-Za-z0-9]{32,}/g) ?? []).some(
    (run) => /[a-z]/.test(run) && /[A-Z]/.test(run) && (run.match(/\d+/g)?.length ?? 0) >= 3,
  );
}

/** Is a fixed value a secret, or a word of it (`Bearer …`)? Called like one, `no-check` and `Fetch` are none. */
export function isSecretValue(name: string, value: string): boolean {
  const isCalledSo = isSecretName(name) || /(?:api|access|auth)key$/i.test(name);
  return value.split(/\s+/).some(isToken) || (isCalledSo && value.length >= 8 && /\d/.test(value));
}

/** Headers, query parameters and the like that everybody takes for secrets by their names. */
export function isSecretName(name: string): boolean {
  const words = name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return (
    /(?:^|-)(?:authorization|cookie|password|passwd|secret|token|credential|credentials|signature)(?:-|$)/.test(
      words,
    ) ||
    /(?:^|-)(?:api|access|private|auth|secret)-?key(?:-|$)/.test(words) ||
    /(?:access|client|api|auth)-?(?:token|secret)$/.test(words)
  );
}

/** What stands in the place of a credential's name, as the end of a sentence about the field. */
export const notAName =
  "is the name under which a secret is stored, and this looks like a secret itself; store it with PUT /v1/credentials/{name} under a name of your own, and write that name here";
