/** How much of somebody else's document is read and kept. What goes beyond is cut, and said so. */
export const importLimits = {
  /** Bytes of one document, as text. */
  documentBytes: 33_554_432,
  yamlBytes: 16_777_216,
  /** Characters of YAML that are read in one go: half a second a megabyte, much longer where every character is a fault. */
  yamlWhole: 131_072,
  /** Values in a YAML document after its aliases are written out. */
  yamlValues: 3_000_000,
  /** Members that its merges (`<<`) bring. */
  yamlMerged: 200_000,
  operations: 5_000,
  definitions: 1_000,
  /** Documents that a document may refer to, and bytes of all together. */
  externalDocuments: 50,
  externalBytes: 33_554_432,
  fetchMs: 30_000,
  /** Characters of a tool's description; some models take no more. */
  toolDescription: 1_024,
  parameterDescription: 512,
  /** Values of an enumeration, and characters of them, that are kept as such. */
  enumValues: 100,
  enumCharacters: 4_096,
  /** Levels of nesting, and characters of descriptions, that are tried until the schema of an operation is small enough. */
  schemaTries: [
    { depth: 16, description: 512 },
    { depth: 10, description: 512 },
    { depth: 7, description: 512 },
    { depth: 5, description: 256 },
    { depth: 4, description: 128 },
    { depth: 3, description: 64 },
    { depth: 2, description: 32 },
    { depth: 1, description: 32 },
    { depth: 0, description: 0 },
  ],
  schemaNodes: 4_000,
  /** The same for all operations of a document together, every try counted. */
  schemaNodesInAll: 500_000,
  schemaBytes: 65_536,
  curlCharacters: 262_144,
} as const;
