/** Vectors that know no meaning: texts that share pieces of words are near each other (feature hashing). */
export function hashedVector(text: string, size: number): Float32Array {
  const vector = new Float32Array(size);
  const characters = Array.from(
    ` ${text
      .normalize("NFKC")
      .toLowerCase()
      .replaceAll(/[\p{P}\s]+/gu, " ")} `,
  );
  for (let at = 0; at < characters.length; at += 1) {
    for (let length = 1; length <= 3 && at + length <= characters.length; length += 1) {
      const hash = hashOf(characters.slice(at, at + length).join(""));
      const place = (hash >>> 1) % size;
      vector[place] = (vector[place] ?? 0) + (hash % 2 === 0 ? 1 : -1) * length;
    }
  }
  const norm = Math.hypot(...vector) || 1;
  return vector.map((value) => value / norm);
}

/** FNV-1a. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
