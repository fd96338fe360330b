// Package bucket is the files of one workspace in a bucket of S3, or of a service that speaks as S3 does: list, read with ranges,
// write and remove on conditions, large files in parts. A [Bucket] never leaves its prefix, and no key of it becomes a name that a
// workspace could not have.
//
// Contracts of others that it rests on: ListObjectsV2, GetObject, HeadObject, PutObject, CompleteMultipartUpload and DeleteObject of
// Amazon S3 with If-Match and If-None-Match. A service that ignores conditions would let one writer overwrite another: [Bucket.Check]
// finds that out.
package bucket
