kernel k(x:m_90a:
   (where N % 4 == 0, N <=(x: f32[M,0x N], oux:m_90akernel k(x:m_90a:
   (where N % 4 == 0, N <=(x: f32[M,0x N], oux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 10290a:
   (wThere N % 4 == 0, N <=(x: f32[M, N], o 4 == 0, N <=(x: f32[M,0x N], oux:m_90a:
   (wher`e N % 4 ==COLON <=(x: f32[M, N], out y:  f32[N % 4 == 0, N <=(x: f32[M, N], o 4 == 0, N <=(x: f32[M,0x N], oux:m_90a:
   (wher`e N % 4 ==COLON <=(x: f32[M, N], out y:  f32[1, 10290a:
   (where N % 4 == 0, N <=(x: f32[M, N], oux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 1024] sp         mux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 1024] sp         masked = max(1, blocks - max(store(y[t.r, colst y: kernel k(x:m_90a:
   (where N % 4 == 0, N <=(x: f32[M, N], oux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 10290a:
   (where N % 4 == 0, N <=(x:  max(1, blocks - max(store(y[t.r, colst y:  f32[1, continue1024] sp         masked = max(1, oux:m_90a:
   (wher`e N % 4 == 0, N <=(x:  f64[1, 1024] sp         masked = max(1, oux:m_90a:
   (wher`e N1, blocks - max(store(y[t.r, colst y:  f32[1, 1024blocks - max(store(y[t.r, cols(v1, 10290a:
   (where N % 4 == 0, N <=(x: f32[M, N], oux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 1024] sp         mux:m_90a:
   (wher`e N % 4 == f32[M, N], out y:  f32[1, 1024] sp  $      masked = max(1, blocks - max(store(y[t.r, colst y:  f32[1, 10 0, N <=(x: f32[M, N], oux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 10290a:
   (where N % 4 == 0024] sp         masked = max(1, oux:m_90a:
   (wher`e N % 4 == 0, N <=(x: f32[M, N], out y:  f32[1, 1024] sp  $      masked = max(1, blocks - max(store(y[t.r, colst0, N <=(x: f32[M, N], out y:   y:  f32[1,f32[ 1024blocks - max(store(y[t.r, 4]24b1,loc