/** Blobs: results, files of sessions, exported calls. Encrypted, closed to the public, reached by TLS alone. */
import { storageKey } from "./keys.ts";
import type { Permission } from "./permission.ts";
import { isPermanent } from "./settings.ts";

/** What was overwritten or deleted can be brought back for so long, and is gone afterwards. */
const oldVersionsDays = 30;

export const blobs = new sst.aws.Bucket("Blobs", {
  versioning: isPermanent,
  // A link to an object is the permission for it, and browsers use links as well.
  cors: {
    allowOrigins: ["*"],
    allowMethods: ["GET", "HEAD", "PUT"],
    allowHeaders: ["content-type", "if-none-match", "range"],
    exposeHeaders: ["etag", "content-length", "content-range"],
    maxAge: "1 hour",
  },
  enforceHttps: true,
  transform: { bucket: { forceDestroy: !isPermanent } },
});

// Objects that name no key of their own are encrypted with ours; the bucket key keeps calls to KMS few.
new aws.s3.BucketServerSideEncryptionConfiguration("BlobsEncryption", {
  bucket: blobs.name,
  rules: [
    {
      applyServerSideEncryptionByDefault: { sseAlgorithm: "aws:kms", kmsMasterKeyId: storageKey.arn },
      bucketKeyEnabled: true,
    },
  ],
});

new aws.s3.BucketLifecycleConfiguration("BlobsLifecycle", {
  bucket: blobs.name,
  rules: [
    {
      id: "unfinished-uploads",
      status: "Enabled",
      filter: { prefix: "" },
      abortIncompleteMultipartUpload: { daysAfterInitiation: 1 },
    },
    {
      id: "old-versions",
      status: "Enabled",
      filter: { prefix: "" },
      noncurrentVersionExpiration: { noncurrentDays: oldVersionsDays },
      expiration: { expiredObjectDeleteMarker: true },
    },
  ],
});

export const useBlobs: readonly Permission[] = [
  {
    actions: ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
    // All objects of one bucket: keys begin with the tenant and are made by `tenantKey` alone.
    resources: [$interpolate`${blobs.nodes.bucket.arn}/*`],
  },
  { actions: ["s3:ListBucket"], resources: [blobs.nodes.bucket.arn] },
  { actions: ["kms:GenerateDataKey", "kms:Decrypt"], resources: [storageKey.arn] },
];
