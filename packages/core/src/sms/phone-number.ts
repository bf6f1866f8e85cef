/** Phone numbers in the one form that all vendors' own forms are made of: E.164 (SVCERR-1 "bad phone number"). */

/** What is known of single countries' numbers, after the country code. */
const nationalForms: Readonly<Record<string, RegExp>> = {
  "86": /^1[3-9]\d{9}$/,
  "1": /^[2-9]\d{2}[2-9]\d{6}$/,
};

/**
 * `+`, country code and number; undefined where the text is none. Spaces, hyphens, dots and brackets between
 * digits may be there, `00` may stand for `+`. A `(0)` behind the country code says two numbers, and which one is
 * meant depends on the country, so that it is none.
 * @param countryCode of numbers without one; absent: they are refused
 */
export function parsePhoneNumber(text: string, countryCode?: string): string | undefined {
  if (text.length > 40 || !/^\s*\+?[0-9][0-9 ().-]*$|^\s*\([0-9][0-9 ().-]*$/.test(text)) return undefined;
  if (/^\s*(?:\+|00).*\(0+\)/.test(text)) return undefined;
  const digits = text.replaceAll(/[^0-9]/g, "");
  if (text.trim().startsWith("+")) return international(digits);
  if (digits.startsWith("00")) return international(digits.slice(2));
  if (countryCode === undefined) return undefined;
  const form = nationalForms[countryCode];
  // Written with the country code, but without what says so.
  if (form !== undefined && digits.startsWith(countryCode) && form.test(digits.slice(countryCode.length)))
    return `+${digits}`;
  return digits.startsWith("0") ? undefined : international(countryCode + digits);
}

function international(digits: string): string | undefined {
  if (!/^[1-9]\d{6,14}$/.test(digits)) return undefined;
  for (const [code, form] of Object.entries(nationalForms)) {
    if (digits.startsWith(code) && !form.test(digits.slice(code.length))) return undefined;
  }
  return `+${digits}`;
}

export function isOfCountry(number: string, countryCode: string): boolean {
  return number.startsWith(`+${countryCode}`);
}
