//! Hand-declared protobuf messages in gRPC frames.

use std::marker::PhantomData;

use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Protobuf in gRPC frames.
#[derive(Debug)]
pub(crate) struct ProstCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for ProstCodec<T, U> {
    fn default() -> Self {
        ProstCodec(PhantomData)
    }
}

impl<T, U> Codec for ProstCodec<T, U>
where
    T: prost::Message + 'static,
    U: prost::Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstCodec<T, U>;
    type Decoder = ProstCodec<T, U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec(PhantomData)
    }
}

impl<T: prost::Message, U> Encoder for ProstCodec<T, U> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl<T, U: prost::Message + Default> Decoder for ProstCodec<T, U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(buffer)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
